package gate

// Size returns how many limits the gate keeps.
func (g *Gate) Size() int { return len(g.resources) }
