package main

import "testing"

// lspconn delivers a server's messages in the order in which the server sent them.
// docs/measured/benchmarks.md shows what other libraries do.
func TestOrder_LspconnDeliversMessagesAsServerSentThem(t *testing.T) {
	ours := orderClients()[0]
	if n := ours.overtakes(10); n != 0 {
		t.Errorf("%d responses were delivered before the notifications that preceded them", n)
	}
	if n, _ := ours.inversions(burst); n != 0 {
		t.Errorf("%d requests were handled after a later one", n)
	}
}

// The measurement notices if a library delivers messages in another order.
func TestOrder_MeasurementNoticesReorderedMessages(t *testing.T) {
	for _, c := range orderClients()[1:] {
		noted := 0
		// On a busy machine, a try may see no response before its notification. So try up to ten
		// times.
		for try := 0; noted == 0 && try < 10; try++ {
			noted = c.overtakes(10)
		}
		inverted, _ := c.inversions(burst)
		t.Logf("%s: %d responses before their notifications, %d of %d requests out of order", c.name, noted, inverted, burst)
		if c.name == "x/exp/jsonrpc2" && noted == 0 {
			t.Errorf("%s delivers no response before its notification", c.name)
		}
	}
}
