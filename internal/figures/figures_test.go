package figures_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRounds_EachSideIsMeasuredFirstInTurn(t *testing.T) {
	var got [][]string
	for i, order := range figures.Rounds(4, "a", "b", "c") {
		testkit.Equal(t, "number of the round", i, len(got))
		got = append(got, order)
	}
	testkit.Equal(t, "orders", got, [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"a", "b", "c"}})
}

func TestQuantile_ReturnsNearestValueAndDoesNotReorderValues(t *testing.T) {
	all := []time.Duration{3, 1, 2, 5, 4}
	for q, want := range map[float64]time.Duration{0: 1, 0.25: 2, 0.5: 3, 0.99: 5, 1: 5} {
		testkit.Equal(t, "quantile", figures.Quantile(all, q), want)
	}
	testkit.Equal(t, "the values afterwards", all, []time.Duration{3, 1, 2, 5, 4})
	testkit.Equal(t, "median of no values", figures.Median[float64](nil), 0.0)
}
