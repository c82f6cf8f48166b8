"""Online side: the matcher, the calibrator, the HTTP application and the command line."""

from service.answers import Answer, Candidate
from service.app import create_app
from service.matcher import Matcher
from service.settings import Settings

__all__ = ["Answer", "Candidate", "Matcher", "Settings", "create_app"]
