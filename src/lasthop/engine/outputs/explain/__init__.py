"""Why things are as they are: the recorded reads, walked and put into words."""
