package dynamo

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// tokenOf makes a transaction's idempotency token out of its contents: equal
// transactions have equal tokens, others do not. It is 32 characters, of the 36
// that the service takes.
//
// A creation holds the time it was planned at, so an equal one is a retry; that
// it is answered with the success of the first one is what is wanted.
func tokenOf(items []types.TransactWriteItem) (string, error) {
	hash := sha256.New()
	encoder := json.NewEncoder(hash)
	for _, item := range items {
		part, err := contents(item)
		if err != nil {
			return "", fmt.Errorf("token: %w", err)
		}
		if err := encoder.Encode(part); err != nil {
			return "", fmt.Errorf("token: %w", err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// part is what one item of a transaction asks for.
type part struct {
	Table, Update, Condition *string
	Names                    map[string]string
	Item, Key, Values        json.RawMessage
}

func contents(item types.TransactWriteItem) (p part, err error) {
	var stored, key, values table.Item
	switch {
	case item.Put != nil:
		put := item.Put
		p = part{Table: put.TableName, Condition: put.ConditionExpression, Names: put.ExpressionAttributeNames}
		stored, values = put.Item, put.ExpressionAttributeValues
	case item.Update != nil:
		u := item.Update
		p = part{Table: u.TableName, Update: u.UpdateExpression, Condition: u.ConditionExpression, Names: u.ExpressionAttributeNames}
		key, values = u.Key, u.ExpressionAttributeValues
	case item.ConditionCheck != nil:
		check := item.ConditionCheck
		p = part{Table: check.TableName, Condition: check.ConditionExpression, Names: check.ExpressionAttributeNames}
		key, values = check.Key, check.ExpressionAttributeValues
	}
	if p.Item, err = ordered(stored); err == nil {
		if p.Key, err = ordered(key); err == nil {
			p.Values, err = ordered(values)
		}
	}
	return p, err
}

// ordered is an item with its names in order; the SDK's own text keeps none.
func ordered(item table.Item) (json.RawMessage, error) { return table.FormatItem(item) }
