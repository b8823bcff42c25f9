package dynamo

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/aws/smithy-go/logging"
)

// SDKLog returns a logger for the SDK's client that writes to log.
func SDKLog(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(class logging.Classification, format string, values ...any) {
		level := slog.LevelDebug
		if class == logging.Warn {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, fmt.Sprintf(format, values...))
	})
}
