"""Online side: the matcher, the calibrator, the HTTP application and the command line."""

from vicinal.service.http.app import create_app
from vicinal.service.matcher.answers import Answer, Candidate
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.settings import Settings

__all__ = ["Answer", "Candidate", "Matcher", "Settings", "create_app"]
