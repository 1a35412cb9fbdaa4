module github.com/swansong-go/swansong/bench

go 1.25

require github.com/swansong-go/swansong v0.0.0
