package main

// Main is for tests that run the command, which is the test program under another name.
var Main = main
