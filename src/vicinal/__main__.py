"""`python -m vicinal` is the `vicinal` command."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command; Ctrl-C ends it without a traceback from its first moment on, while it is loaded."""
    try:
        from vicinal.service.cli import main as run
        from vicinal.service.process import ends_process
    except KeyboardInterrupt:
        sys.exit(130)
    with ends_process():
        run()


if __name__ == "__main__":
    main()
