//go:build !unix

package aggregator_test

import "time"

var began = time.Now()

// spent is the time since the start, where a process's own cannot be had.
func spent() time.Duration { return time.Since(began) }
