// Package debugpage tests the debug page of httpdrain in a browser. The tests control Chromium
// through a pipe. Without Chromium they are skipped, but fail in CI.
//
// If the environment variable SWANSONG_SHOTS names a directory, they write screenshots into it.
package debugpage
