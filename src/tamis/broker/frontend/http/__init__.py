"""HTTP: operations as data, their bodies, the OpenAPI document and the event stream."""
