package packed

// Who counts a guard only if no stop has been signalled asks for the signal after he has counted. Where every signal is
// warned of by a bit in the words of all that is linked below, the addition has answered that already:
//
//	Warn  sets the bit here and in all that is linked below, before the signal
//	join  passes it on, like the seal
//
// An addition that finds the bit unset was made before the bit was set, and so before the signal. A loose scope learns of
// nothing, and who counts on it asks. A set bit proves nothing: a signal may be about to be given, or may be given by
// others, without a warning. Nor does it prove that those below have theirs: a second stopper walks as well.

// Warn is called before the stop of n is signalled. When it returns, [Unsignalled] holds for no acquisition here or below
// that begins from then on.
func (n *Node) Warn() {
	if n.word.Load()&live == 0 {
		return // nor is anybody below live, nor will who joins be
	}
	if n.word.Or(warned)&kin == 0 {
		return // who joins from now on sees the bit
	}
	n.mu.Lock()
	kids := n.kids.snapshot()
	n.mu.Unlock()
	for _, k := range kids {
		k.Warn()
	}
}

// Unsignalled reports whether the acquisition for which [Node.Count] returned v came before any stop of its scope was
// signalled. If not, [Node.Unsignalled] may still know, and then the signal is to be asked.
func Unsignalled(v uint64) bool { return v&(live|loose|canary|warned) == live|canary }

// Unsignalled reports whether all that came before the call, such as an acquisition on a stripe, came before any stop of n
// was signalled.
func (n *Node) Unsignalled() bool { return Unsignalled(n.word.Load()) }
