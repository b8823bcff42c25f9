package memory

import (
	"context"
	"fmt"
	"strings"

	"github.com/shardquota/shardquota/table"
)

// FindLevels implements table.Client. Of a table that lies over another it sees
// what was loaded or written so far.
func (c *Client) FindLevels(ctx context.Context, namespace, resource string) ([]table.ItemKey, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find levels: %w: %w", table.ErrRetry, err)
	}
	var keys []table.ItemKey
	for _, item := range c.Store.Items() {
		if item.Text(table.AttrGSI3PK) == table.LevelPK(namespace, resource) && strings.HasPrefix(item.Text(table.AttrGSI3SK), table.LevelSK) {
			pk, sk := item.Key()
			keys = append(keys, table.ItemKey{PK: pk, SK: sk})
		}
	}
	return keys, nil
}
