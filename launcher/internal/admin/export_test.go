package admin

// Limit returns a listener that accepts a connection only while fewer than n are open.
var Limit = limit
