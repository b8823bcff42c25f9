package limits

import (
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Room for limits on one bucket: 34 that drip, 24 that drip by a schedule or 17 of any
// other kind, or a mixture in proportion. DynamoDB takes 300 operators in a condition.
// The creation of a shard runs out of them first, or a change of every schedule. A test
// builds the largest writes, which these bounds follow from.
const (
	bucketRoom    = 408
	dripRoom      = bucketRoom / 34
	scheduledRoom = bucketRoom / 24
	quotaRoom     = bucketRoom / 17
)

// room is how much of a bucket's room the limit takes.
func (l Limit) room() int {
	switch {
	case l.Refill == 0, l.Division == quota.Replicated:
		return quotaRoom
	case len(l.Schedule) > 0:
		return scheduledRoom
	}
	return dripRoom
}

// checkRoom returns an error where DynamoDB would not take the largest writes of a
// bucket with the limits. It wraps ErrLimit and table.ErrRequest, and names the first
// limit that has no room.
func checkRoom(limits []Limit) error {
	item, room := table.Item{}, bucketRoom
	for _, l := range limits {
		item.Set(configAttrs([]Limit{l}, 1))
		err := table.CheckShards(item)
		if room -= l.room(); room < 0 {
			err = fmt.Errorf("%w: a bucket has room for 34 limits that drip, for 24 with a schedule, or for 17 quotas", table.ErrRequest)
		}
		if err != nil {
			return fmt.Errorf("%w %.80q: one too many for one bucket: %w", ErrLimit, l.Name, err)
		}
	}
	return nil
}
