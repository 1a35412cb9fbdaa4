package peer

// Trusted says whether a user is spoken with.
var Trusted = trusted
