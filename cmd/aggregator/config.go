package main

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
)

// config is the function's configuration, read from its environment once at start.
type config struct {
	Table       string        `env:"SHARDQUOTA_TABLE,required,notEmpty"`
	WindowList  string        `env:"SHARDQUOTA_WINDOWS" envDefault:"hourly,daily"`
	UsageDays   int           `env:"SHARDQUOTA_USAGE_DAYS" envDefault:"90"`
	Concurrency int           `env:"SHARDQUOTA_CONCURRENCY" envDefault:"16"`
	Reserve     time.Duration `env:"SHARDQUOTA_RESERVE" envDefault:"2s"`
	HashKey     string        `env:"SHARDQUOTA_HASH_KEY"`
	LogLevel    slog.Level    `env:"SHARDQUOTA_LOG_LEVEL" envDefault:"INFO"`

	windows []events.Window
}

func loadConfig(environment map[string]string) (config, error) {
	c, err := env.ParseAsWithOptions[config](env.Options{Environment: environment})
	if err != nil {
		return config{}, fmt.Errorf("configuration: %w", byVariable(err))
	}
	if c.windows, err = events.ParseWindows(c.WindowList); err != nil {
		return config{}, fmt.Errorf("configuration: SHARDQUOTA_WINDOWS: %w", err)
	}
	switch {
	case c.UsageDays < 0 || c.UsageDays > aggregator.MaxUsageDays:
		err = fmt.Errorf("configuration: SHARDQUOTA_USAGE_DAYS: %d is not within 0 and %d", c.UsageDays, aggregator.MaxUsageDays)
	case c.Concurrency < 1 || c.Concurrency > 256:
		err = fmt.Errorf("configuration: SHARDQUOTA_CONCURRENCY: %d is not within 1 and 256", c.Concurrency)
	case c.Reserve < 0 || c.Reserve > 5*time.Minute:
		err = fmt.Errorf("configuration: SHARDQUOTA_RESERVE: %v is not within 0s and 5m", c.Reserve)
	}
	return c, err
}

// byVariable makes an error about a field of config name its variable.
func byVariable(err error) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return err
	}
	named := make([]error, len(all.Errors))
	for i, err := range all.Errors {
		named[i] = err
		var parse env.ParseError
		if !errors.As(err, &parse) {
			continue
		}
		if field, ok := reflect.TypeFor[config]().FieldByName(parse.Name); ok {
			named[i] = fmt.Errorf("%s: %w", field.Tag.Get("env"), parse.Err)
		}
	}
	return errors.Join(named...)
}
