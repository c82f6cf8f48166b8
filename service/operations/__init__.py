"""Operations: all that can be done with a gallery, each in one file that every surface is made from.

A module holds what is asked for, such as `IndexRequest`, each field stated once with help, range and default;
`run`, which does it at a `Place` and tells its `Progress`; and `OPERATION`, which names both. Made of
them are

    options of a command   `surfaces.command_line.Commands`: a parameter that is a request becomes options
    bodies and forms       a body is the request, or a class that adds to it; `surfaces.query_uploads.form_of`
    jobs                   `surfaces.jobs.OperationJob`, of the `OPERATIONS` that stand there; routes
                           begin them with `http.routes.jobs.begin_job`
    keywords in Python     `checked_calls.checked_options`

What a run needs is imported inside of it: `--help` loads the requests of all commands.
"""

from vicinal.service.operations.place import Operation, Progress

__all__ = ["Operation", "Progress"]
