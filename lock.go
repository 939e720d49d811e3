package perdure

// EntityRef is the address of an entity: its name and its key.
type EntityRef struct{ Type, Key string }
