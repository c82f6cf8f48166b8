"""Label: a threshold for a gallery without labels, from answers about pairs of its photos."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StrictBool

from vicinal.service.request_fields import CommandOption, RequestFields, TargetText

if TYPE_CHECKING:
    from vicinal.service.labelling.session import LabelSession
    from vicinal.service.operations.place import Place


class LabelRequest(RequestFields):
    """Request to begin a labelling."""

    target: Annotated[
        TargetText,
        CommandOption("What the threshold has to hold: precision=95% of the matches, or far=0.1%."),
    ] = Field("precision=95%", description="`precision=95%` of the matches that are shown, or `far=0.1%`.")
    restart: Annotated[StrictBool, CommandOption(None, "--restart")] = Field(
        False, description="Begin anew although a session is under way."
    )


def run(place: Place, request: LabelRequest) -> LabelSession:
    """Go on with the session under way, or begin one where there is none for this target."""
    from vicinal.calibration.targets import Target
    from vicinal.service.labelling.session import LabelSession

    return LabelSession.resume(place.matcher, Target.parse(request.target), restart=request.restart)
