//go:build long

package txtest_test

import (
	"math/rand/v2"
	"testing"
)

// A thousand transfers run with crashes at random points and two zombies: processes that continue
// after others have taken over their work. At the end all balances are exact to the cent.
func TestLongThousandTransfers(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) { storm(t, b, 1000, 20, rand.New(rand.NewPCG(1, 1000))) })
}

func TestLongEveryPoint(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) { everyPoint(t, b, func(action, int) bool { return true }) })
}

func TestLongZombie(t *testing.T) { zombies(t, []int{1, 2, 3, 4, 5, 6, 7}) }

func TestLongKilledProcesses(t *testing.T) { massacre(t, 1000, 12) }
