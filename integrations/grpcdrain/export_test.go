package grpcdrain

import "time"

// SetAnswerLimit sets the time in which a handler whose context was cancelled may answer its
// client, and returns a function that sets it back.
func SetAnswerLimit(d time.Duration) (restore func()) {
	old := answerLimit
	answerLimit = d
	return func() { answerLimit = old }
}
