package cli

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/perdure/perdure/internal/fault"
)

const (
	// gap is the number of spaces between two columns.
	gap = 2
	// comfortable is the width to which columns shrink before the table drops optional columns.
	comfortable = 20
	// narrowest is the width below which columns do not shrink. If lines are then still too
	// long, the table cuts them at their end.
	narrowest = 8
	// cutMark marks the place of a cut.
	cutMark = "…"
)

// table prints rows under a head whose titles are separated by tabs. If there is no head, the first
// columns are titles, and the table wraps the last column.
//
// If a table with a head is wider than the terminal, it shrinks its widest columns, but not columns
// of times and numbers. If that is not enough, it drops the columns whose title ends in "?",
// starting with the last one. A pipe has no width and gets everything. With --fields the table has
// only the columns that the user names.
func (o *options) table(head string, rows [][]string) error {
	width := o.width()
	if head == "" && o.fields != nil {
		return fault.WithHint(fault.New(fault.Invalid, "--fields selects columns of a table, and this output has none"), "add -o json, jsonl or yaml")
	}
	if head == "" {
		return o.print(wrapTable(rows, width))
	}

	titles := strings.Split(head, "\t")
	if o.fields != nil {
		var err error
		if titles, rows, err = o.fields.columns(titles, rows); err != nil {
			return err
		}
	}
	lines, dropped := fitTable(titles, rows, width)
	if err := o.print(lines); err != nil {
		return err
	}

	if len(dropped) > 0 {
		fmt.Fprintf(o.Err, "Columns not shown: %s. Add --wide to show them.\n", strings.Join(dropped, ", "))
	}
	return nil
}

// width returns the largest number of characters of a line, or 0 for no limit.
func (o *options) width() int {
	if o.wide || o.full {
		return 0
	}
	return o.Width
}

// say prints a text in lines that fit the terminal.
func (o *options) say(w io.Writer, text string) {
	for _, line := range paragraph(text, o.width()) {
		fmt.Fprintln(w, line)
	}
}

func (o *options) print(lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(o.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// fitTable lays out a table with a head within a width, and returns the titles of the dropped
// columns.
func fitTable(titles []string, rows [][]string, width int) (lines, dropped []string) {
	all := make([][]string, 0, len(rows)+1)
	optional := make([]bool, len(titles))
	for i, title := range titles {
		titles[i], optional[i] = strings.CutSuffix(title, "?")
	}
	all = append(all, titles)
	for _, row := range rows {
		clean := make([]string, len(titles))
		for i := range min(len(row), len(titles)) {
			clean[i] = oneLine(row[i])
		}
		all = append(all, clean)
	}

	widths := giveWay(all, width, comfortable)
	for i := len(titles) - 1; i >= 0 && width > 0 && total(widths) > width; i-- {
		if optional[i] {
			dropped = append(dropped, titles[i])
			for r := range all {
				all[r] = slices.Delete(slices.Clone(all[r]), i, i+1)
			}
			widths = giveWay(all, width, comfortable)
		}
	}
	slices.Reverse(dropped)
	if width > 0 && total(widths) > width {
		widths = giveWay(all, width, narrowest)
	}

	for _, row := range all {
		lines = append(lines, line(row, widths, width))
	}
	return lines, dropped
}

// oneLine returns a cell without line breaks and without control characters, which a terminal would
// execute.
func oneLine(cell string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, cell)
}

func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	return widths
}

func total(widths []int) int {
	sum := gap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// giveWay shrinks the widest columns of a table until a line fits. No column gets narrower than
// least. A width of 0 means no limit.
func giveWay(rows [][]string, width, least int) []int {
	widths := widthsOf(rows)
	rigid := make([]bool, len(widths))
	for i := range widths {
		rigid[i] = !slices.ContainsFunc(rows[1:], func(row []string) bool { return strings.Trim(row[i], "0123456789-+:./ TZ") != "" })
	}

	for width > 0 && total(widths) > width {
		widest := -1
		for i, w := range widths {
			if !rigid[i] && w > least && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// line lays out one row. It shortens each cell that is wider than its column. In the last column it
// cuts the end off, because that column is usually prose. In the other columns it cuts the middle
// out, because they have names that differ at both ends.
func line(row []string, widths []int, width int) string {
	var b strings.Builder
	for i, cell := range row {
		last := i == len(row)-1
		if last {
			cell = ansi.Truncate(cell, widths[i], cutMark)
		} else {
			cell = cutMiddle(cell, widths[i])
		}
		b.WriteString(cell)
		if !last {
			b.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)+gap))
		}
	}

	text := strings.TrimRight(b.String(), " ")
	if width > 0 {
		text = ansi.Truncate(text, width, cutMark)
	}
	return text
}

// cutMiddle shortens a name to a width and keeps both ends. People may use the shortened name as an
// argument: see abbreviation.
func cutMiddle(name string, width int) string {
	if ansi.StringWidth(name) <= width {
		return name
	}
	tail := min(6, (width-1)/3)
	head := ansi.Truncate(name, width-1-tail, "")
	return head + cutMark + ansi.TruncateLeft(name, ansi.StringWidth(name)-tail, "")
}

// wrapTable lays out rows without a head: titles, and a last column that continues on the next
// lines.
func wrapTable(rows [][]string, width int) (lines []string) {
	if len(rows) == 0 {
		return nil
	}

	titles := make([][]string, len(rows))
	for i, row := range rows {
		for _, title := range row[:len(row)-1] {
			titles[i] = append(titles[i], oneLine(title))
		}
	}
	widths := widthsOf(titles)
	indent := total(widths) + gap
	if width > 0 {
		width = max(width-indent, narrowest)
	}

	for i, row := range rows {
		title := ""
		for j, cell := range titles[i] {
			title += cell + strings.Repeat(" ", widths[j]-ansi.StringWidth(cell)+gap)
		}
		for _, text := range paragraph(row[len(row)-1], width) {
			lines = append(lines, strings.TrimRight(title+text, " "))
			title = strings.Repeat(" ", indent)
		}
	}
	return lines
}

// flagNames matches names of flags in a text. Lines do not break at the hyphens of these names,
// because people copy the names.
var flagNames = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

// stiff replaces the hyphens of flag names while paragraph breaks a text into lines. It is as wide
// as a hyphen, and the texts do not contain it.
const stiff = "\ue000"

// paragraph breaks a text into lines of a width; 0 means no limit.
func paragraph(text string, width int) (lines []string) {
	for part := range strings.SplitSeq(text, "\n") {
		part = oneLine(part)
		if width > 0 {
			part = flagNames.ReplaceAllStringFunc(part, func(name string) string { return strings.ReplaceAll(name, "-", stiff) })
			part = strings.ReplaceAll(ansi.Wrap(part, width, ""), stiff, "-")
		}
		lines = append(lines, strings.Split(part, "\n")...)
	}
	return lines
}
