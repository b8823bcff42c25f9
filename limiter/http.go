package limiter

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
)

// quotaExceeded is the problem type of a rejection, as the IETF's draft on
// RateLimit header fields registers it.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// WriteHTTP answers a request with a rejection: 429 Too Many Requests, the header
// fields of SetHTTP, and a problem (RFC 9457) that names the limits that are short. It
// names no entity.
func (r *Rejection) WriteHTTP(w http.ResponseWriter) error {
	r.SetHTTP(w.Header())
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusTooManyRequests)
	violated := []string{}
	for _, s := range r.Limits {
		if s.Short() {
			violated = append(violated, s.Limit)
		}
	}
	title := "More was asked for than is left"
	if r.Impossible() {
		title = "More was asked for than can ever be given at once"
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"type": quotaExceeded, "title": title, "status": http.StatusTooManyRequests, "violated-policies": violated,
	})
}

// SetHTTP sets the header fields of a rejection: RateLimit-Policy, RateLimit and,
// unless no wait ever helps, Retry-After (RFC 9110).
//
// RateLimit follows two drafts at once, and a reader of one passes over the other.
// Draft-ietf-httpapi-ratelimit-headers-12 calls what is available a, the seconds until
// more can be asked for w, and the cost of the request c. Drafts 8 to 11 call the first
// two r and t. What is available is that of one shard: one request can have no more.
func (r *Rejection) SetHTTP(header http.Header) {
	var policies, limits httpsfv.List
	for _, s := range r.Limits {
		policies = append(policies, s.policy())
		limits = append(limits, s.serviceLimit())
	}
	// A limit's name and whole numbers are always well-formed.
	if text, err := httpsfv.Marshal(policies); err == nil {
		header.Set("RateLimit-Policy", text)
	}
	if text, err := httpsfv.Marshal(limits); err == nil {
		header.Set("RateLimit", text)
	}
	if wait, ok := r.RetryAfter(); ok {
		header.Set("Retry-After", strconv.FormatInt(wholeSecondsUp(wait), 10))
	}
}

// policy returns what the limit allows, in the seconds in which all of it drips.
func (s Status) policy() httpsfv.Item {
	item := httpsfv.NewItem(s.Limit)
	item.Params.Add("q", min(s.Capacity, maxHTTPInteger))
	if s.Window > 0 {
		item.Params.Add("w", wholeSecondsUp(s.Window))
	}
	return item
}

// serviceLimit returns what the limit has now.
func (s Status) serviceLimit() httpsfv.Item {
	item := httpsfv.NewItem(s.Limit)
	available := min(max(0, s.Available), maxHTTPInteger)
	item.Params.Add("a", available)
	if s.RetryAfter > 0 {
		item.Params.Add("w", wholeSecondsUp(s.RetryAfter))
	}
	item.Params.Add("c", min(s.Requested, maxHTTPInteger))
	item.Params.Add("r", available)
	if s.RetryAfter > 0 {
		item.Params.Add("t", wholeSecondsUp(s.RetryAfter))
	}
	return item
}

// maxHTTPInteger bounds integers of structured fields.
const maxHTTPInteger = 999_999_999_999_999

func wholeSecondsUp(d time.Duration) int64 { return int64((d-1)/time.Second) + 1 }
