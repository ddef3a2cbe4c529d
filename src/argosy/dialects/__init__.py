"""Translations between an API's objects and the model, one module an API."""
