package peer

// Trusted reports whether the user with a uid may connect.
var Trusted = trusted
