package main

// Main runs the command. The tests run it in a copy of the test program.
var Main = main

// PrintJSON prints a message as JSON.
var PrintJSON = printJSON

// NewPrinter creates a printer for the given stdout and stderr.
var NewPrinter = newPrinter

// Ends writes a text to the stdout and the stderr of p, and then calls p.end(err).
func (p *printer) Ends(text string, err error) {
	p.out.Write([]byte(text))
	p.errs.Write([]byte(text))
	p.end(err)
}
