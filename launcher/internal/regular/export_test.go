package regular

// OpenChanged opens a file that may have changed since Open has looked at it.
var OpenChanged = open
