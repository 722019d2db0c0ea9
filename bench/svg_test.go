package bench

import (
	"fmt"
	"html"
	"math"
	"strings"
)

const svgStyle = `<style>text{font:12px sans-serif;fill:#333}.t{font-size:14px;font-weight:bold}.s{font-size:11px;fill:#666}</style>`

var colours = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b"}

// hues are the colours of kinds.
var hues = map[kind]string{floor: "#9aa5b1", peer: "#e0a458", ours: "#1f77b4"}

// bar is one bar of a chart.
type bar struct {
	name  string
	kind  kind
	value float64
	text  string // written beside it
}

// barsOf are the costs of some results as bars.
func barsOf(results []result, value func(result) float64, text func(result) string) []bar {
	bars := make([]bar, len(results))
	for i, w := range results {
		bars[i] = bar{w.name, w.kind, value(w), text(w)}
	}
	return bars
}

// barGroup is a group of bars with a heading.
type barGroup struct {
	name string
	bars []bar
}

// barChart draws lying bars in groups, on a logarithmic scale if they differ by much.
func barChart(title, unit string, groups ...barGroup) string {
	least, most, lines := math.Inf(1), 0.0, 0
	for _, g := range groups {
		lines++
		for _, b := range g.bars {
			lines++
			if b.value > 0 {
				least, most = min(least, b.value), max(most, b.value)
			}
		}
	}
	logarithmic := most > 25*least
	const left, width, row = 290, 330, 20
	length := func(v float64) float64 {
		switch {
		case v <= 0 || most == 0:
			return 0
		case logarithmic:
			return width * (0.05 + 0.95*math.Log(v/least)/math.Log(most/least))
		default:
			return width * v / most
		}
	}
	var b strings.Builder
	scale := ""
	if logarithmic {
		scale = ", logarithmic"
	}
	y := open(&b, 780, 60+lines*row, title)
	fmt.Fprintf(&b, `<text class="s" x="10" y="%d">%s%s; grey: floor, amber: peers, blue: ours</text>`, y, html.EscapeString(unit), scale)
	y += row
	for _, g := range groups {
		fmt.Fprintf(&b, `<text x="10" y="%d" font-weight="bold">%s</text>`, y, html.EscapeString(g.name))
		y += row
		for _, one := range g.bars {
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y, html.EscapeString(one.name))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="14" fill="%s"/>`, left, y-11, length(one.value), hues[one.kind])
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`, left+length(one.value)+6, y, html.EscapeString(one.text))
			y += row
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// series is one line of a chart.
type series struct {
	name   string
	xs, ys []float64
}

// span is a stretch of the horizontal axis that something was the case in.
type span struct {
	from, to float64
	name     string
}

// lineChart draws lines over a common pair of axes that begin at 0.
func lineChart(title, xName, yName string, spans []span, lines ...series) string {
	const left, top, width, height = 60, 60, 660, 260
	maxX, maxY := 0.0, 0.0
	for _, s := range lines {
		for i := range s.xs {
			maxX, maxY = max(maxX, s.xs[i]), max(maxY, s.ys[i])
		}
	}
	maxX, maxY = ceiling(maxX), ceiling(maxY)
	px := func(x float64) float64 { return left + width*min(x, maxX)/maxX }
	py := func(y float64) float64 { return top + height*(1-y/maxY) }

	var b strings.Builder
	open(&b, 780, top+height+70, title)
	for _, s := range spans {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#f3e9d2"/>`, px(s.from), top, px(s.to)-px(s.from), height)
		fmt.Fprintf(&b, `<text class="s" x="%.1f" y="%d">%s</text>`, px(s.from)+4, top+14, html.EscapeString(s.name))
	}
	for i := range 6 {
		f := float64(i) / 5
		fmt.Fprintf(&b, `<path d="M%d %.1fh%d" stroke="#ddd"/>`, left, py(f*maxY), width)
		fmt.Fprintf(&b, `<text class="s" x="%d" y="%.1f" text-anchor="end">%.4g</text>`, left-6, py(f*maxY)+4, f*maxY)
		fmt.Fprintf(&b, `<text class="s" x="%.1f" y="%d" text-anchor="middle">%.4g</text>`, px(f*maxX), top+height+16, f*maxX)
	}
	fmt.Fprintf(&b, `<text class="s" x="%d" y="%d" text-anchor="middle">%s</text>`, left+width/2, top+height+34, html.EscapeString(xName))
	fmt.Fprintf(&b, `<text class="s" x="%d" y="%d">%s</text>`, left, top-8, html.EscapeString(yName))
	for i, s := range lines {
		colour := colours[i%len(colours)]
		points := make([]string, len(s.xs))
		for j := range s.xs {
			points[j] = fmt.Sprintf("%.1f,%.1f", px(s.xs[j]), py(s.ys[j]))
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.6" points="%s"/>`, colour, strings.Join(points, " "))
		x, y := left+(i%3)*230, top+height+50+(i/3)*14
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="3" fill="%s"/><text class="s" x="%d" y="%d">%s</text>`, x, y-4, colour, x+20, y, html.EscapeString(s.name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// open begins a picture and returns where its content may begin.
func open(b *strings.Builder, width, height int, title string) int {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">%s<rect width="100%%" height="100%%" fill="white"/>`,
		width, height, width, height, svgStyle)
	fmt.Fprintf(b, `<text class="t" x="10" y="22">%s</text>`, html.EscapeString(title))
	return 40
}

// ceiling is the next round number.
func ceiling(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8} {
		if v <= f*unit {
			return f * unit
		}
	}
	return 10 * unit
}
