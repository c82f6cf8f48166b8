"""Views: a version as it was built, with the live changes since, what is refined, what is selected."""
