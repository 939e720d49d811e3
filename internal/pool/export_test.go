package pool

// WithMemory makes the pool call level to find out how full the memory is.
func (c Config) WithMemory(level func() float64) Config {
	c.memory, c.collect = level, func() {}
	return c
}

// WithCollector makes the pool call collect instead of collecting garbage.
func (c Config) WithCollector(collect func()) Config {
	c.collect = collect
	return c
}

// Gate is a gate, for tests of its rule.
type Gate struct{ g gate }

// NewGate returns a gate with marks.
func NewGate(high, low float64) *Gate { return &Gate{gate{high: high, low: low}} }

// Level sets the level and reports whether the gate is shut.
func (g *Gate) Level(v float64) bool {
	g.g.level(v)
	return g.g.shut
}
