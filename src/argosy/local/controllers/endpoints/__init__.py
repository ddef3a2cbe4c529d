"""Services and the addresses behind them, as EndpointSlices."""
