"""What each worker of a pool's file may say, and what is wrong with it, in words."""
