package proof_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// A search makes much that is forgotten at once, and keeps little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
