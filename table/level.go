package table

// The index entries of the items on which entities have limits of their own for a
// resource. The resource "_default_" stands for all.
const (
	levelMark = "/ENTITY_CONFIG#"

	// LevelSK opens the sort key in GSI3 of such an item; the entity follows.
	LevelSK = "ENTITY#"
)

// LevelPK is the partition key in GSI3 of such items.
func LevelPK(namespace, resource string) string { return namespace + levelMark + resource }
