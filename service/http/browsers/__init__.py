"""Guards that keep the pages of other sites from using a server through the browser of somebody who may."""
