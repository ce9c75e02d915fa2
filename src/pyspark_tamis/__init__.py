"""The package in which Spark looks for the data source `tamis`: `spark.read.format("tamis")`."""

from tamis.spark.connectors.broker_source import BrokerSource as DefaultSource

__all__ = ["DefaultSource"]
