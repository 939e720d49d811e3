package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

const (
	// barWidth is the number of characters of a progress bar.
	barWidth = 24
	// lineEvery is the pause between two lines of progress in a file or a pipe. drawEvery is the
	// pause between two drawings of the bar on a terminal.
	lineEvery = time.Second
	drawEvery = 100 * time.Millisecond
)

// progress tells people on standard error how far bulk work is. A terminal shows a bar that is
// drawn again in its line. A file or a pipe gets a line per second.
type progress struct {
	o     *options
	told  time.Time
	said  string
	drawn bool // the last line of the terminal is a bar
}

func (o *options) newProgress() *progress { return &progress{o: o, told: time.Now()} }

// tell shows the progress, unless it was shown just now. A total of 0 means that the total is not
// known.
func (p *progress) tell(done, total int64, text string) {
	every := lineEvery
	if p.o.ErrWidth > 0 {
		every = drawEvery
	}
	if text == p.said || time.Since(p.told) < cmp.Or(p.o.every, every) {
		return
	}
	p.show(done, total, text)
}

// show shows the progress now.
func (p *progress) show(done, total int64, text string) {
	p.told, p.said = time.Now(), text
	if p.o.ErrWidth == 0 {
		fmt.Fprintf(p.o.Err, "%s.\n", text)
		return
	}
	// A line of the full width would wrap.
	line := ansi.Truncate(bar(done, total)+text, p.o.ErrWidth-1, cutMark)
	fmt.Fprintf(p.o.Err, "\r%s%s", line, ansi.EraseLineRight)
	p.drawn = true
}

// clear removes the bar, so that another line can be printed.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.o.Err, "\r"+ansi.EraseLineRight)
		p.drawn = false
	}
}

// bar draws how much of a total is done.
func bar(done, total int64) string {
	if total <= 0 {
		return ""
	}
	part := float64(min(max(done, 0), total)) / float64(total)
	full := int(part * barWidth)
	return fmt.Sprintf("[%s%s] %3d%% ", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), int(part*100))
}
