// Package packed counts guards in a tree of scopes. It tells when a stopped scope has no guards
// left in its subtree. The count is exact, and acquiring or releasing a guard of a running scope
// takes one atomic addition and no lock, at any depth.
//
// # The problem
//
// A scope is complete once it has been stopped and no guard is held in its subtree. In the obvious
// algorithm, the guard that takes a counter from zero to one goes up the tree and increments every
// ancestor. That loses guards: a second guard of the same leaf returns at once, while the first is
// still on its way to the root, and a stop of the root finds a count of zero. An acquisition must
// not return before the root can see it.
//
// # The protocol
//
// Each scope has a [Node], whose state is one 64-bit word. Every transition is one atomic operation
// on a word.
//
// A node is live until a stop reaches it, and sealed afterwards. Whether a live node is empty does
// not matter to any other node, so a guard of a live node only changes the word of that node. A
// sealed node that is not empty is announced: it counts as one child in the word of its parent.
// Three invariants make the count exact:
//
//  1. A sealed node whose subtree holds a guard is announced at its parent before any acquisition
//     in the subtree returns.
//  2. Each set announced bit stands for exactly one child counted in the word of the parent.
//  3. A node is sealed only after all nodes linked below it have been sealed. A second stopper
//     waits for the first.
//
// The files describe the parts of the protocol:
//
//	word.go     the bits of a word
//	node.go     acquiring, releasing, announcing, sealing, completion channels
//	link.go     when a node is in the child list of its parent
//	warn.go     how TryGuard learns whether a stop has been signalled, without asking a context
//	stripes.go  how a contended node spreads its count over several cache lines
//
// docs/internals/counting.md explains why the protocol is correct. The directory models contains it
// in Promela, for the model checker Spin, with broken variants that the checker must reject.
// docs/internals/debugging.md explains what to do when a test of this package fails.
package packed
