"""Articles and their orders."""

from django.db import models


class Article(models.Model):
    name = models.CharField(max_length=50, unique=True)
    stock = models.PositiveIntegerField()
    attributes = models.JSONField(default=dict)


class Order(models.Model):
    article = models.ForeignKey(Article, on_delete=models.PROTECT)
    number = models.PositiveIntegerField()
