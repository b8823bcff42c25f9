//go:build unix

package aggregator_test

import (
	"syscall"
	"time"
)

// spent is the time that processors have given this process so far. Others that
// run meanwhile are not in it, though they do share its caches.
func spent() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
