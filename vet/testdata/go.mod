// The packages here are what the analyzers are tested on, with the real thing to import.
module example.com/service

go 1.26

require github.com/swansong-go/swansong v0.0.0

replace github.com/swansong-go/swansong => ../..
