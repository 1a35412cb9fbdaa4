// Package debugtest has the tests of httpdrain's debug page that need a browser. They drive Chromium over a pipe, and
// are skipped where there is none, except in CI.
//
// With SWANSONG_SHOTS=DIR they leave screenshots in DIR, for people to look at.
package debugtest
