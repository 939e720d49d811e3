package perduretest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// told is a writer that sends each text to a channel.
type told struct{ texts chan string }

func (w told) Write(p []byte) (int, error) {
	w.texts <- string(p)
	return len(p), nil
}

// TestWatchNamesWhatIsBusy runs a test that waits for something outside its bubble. Inside the
// bubble, a goroutine waits for time to pass.
func TestWatchNamesWhatIsBusy(t *testing.T) {
	t.Parallel()
	w := told{make(chan string)}
	release := make(chan struct{}) // created outside the bubble
	timer := watch("TestX", 100*time.Millisecond, w)
	defer timer.Stop()

	go func() {
		defer close(release)
		text := <-w.texts
		for _, want := range []string{"TestX has taken 100ms of real time", "Virtual time stands still", "waitsOutside"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s\nhas no %q", text, want)
			}
		}
		if strings.Contains(text, "sleepsInside") {
			t.Errorf("%s\nnames a goroutine that waits for time to pass", text)
		}
	}()

	synctest.Test(t, func(*testing.T) {
		go sleepsInside()
		waitsOutside(release)
		time.Sleep(2 * time.Hour)
	})
}

func waitsOutside(release <-chan struct{}) { <-release }

func sleepsInside() { time.Sleep(time.Hour) }
