package main

// Main is for tests that run the command, which is the test program under another name.
var Main = main

// NewPrinter returns what prints a text, and what then ends with an error.
var NewPrinter = newPrinter

// Ends has a printer say a text on both, and end.
func (p *printer) Ends(text string, err error) {
	p.out.Write([]byte(text))
	p.errs.Write([]byte(text))
	p.end(err)
}
