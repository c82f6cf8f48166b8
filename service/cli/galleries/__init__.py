"""Commands about galleries: what they hold, their versions, other names and other machines."""
