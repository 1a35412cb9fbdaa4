package main

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/swansong-go/swansong/launcher/config"
)

// loadAtStart loads the configuration file of a launcher that starts. That file, and the files of
// env_file, can be pipes. To open a pipe waits until another program opens it for writing. After a
// second, loadAtStart prints which pipe it waits for, and goes on waiting.
func loadAtStart(file string) (*config.Config, *config.Source, error) {
	return config.LoadSourceFunc(file, func(name string) (*os.File, error) {
		if info, err := os.Stat(name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
			waiting := time.AfterFunc(time.Second, func() {
				fmt.Fprintf(printed().errs, "launcher: waiting for a program that writes to the pipe %s\n", name)
			})
			defer waiting.Stop()
		}
		return os.Open(name)
	})
}
